"""An ASR worker in Python behind Leasehold's fence: DATABASE_URL=postgres://… python3 asr_worker.py [--once]"""
import os, socket, sys, threading, time, uuid

import psycopg

URL, BEAT_SEC = os.environ["DATABASE_URL"], float(os.environ.get("HEARTBEAT_SEC", "10"))
HOLDER = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:4]}"  # new at every start, never a stable name


def transcribe(job, is_lost):  # your own work; look at is_lost between steps and stop when it is set
    for _ in range(int((job.get("payload") or {}).get("steps", 3))):
        if is_lost.wait(0.1):
            return
    print("transcribed", job["id"], flush=True)


def beat(fence, stop, is_lost):  # a thread and a connection of its own: busy work must not stop it
    with psycopg.connect(URL, autocommit=True) as db:
        while not stop.wait(BEAT_SEC):
            if db.execute("select leasehold.heartbeat_asr_jobs(%s, %s, %s)", fence).fetchone()[0] is None:
                return is_lost.set()  # somebody else has the job: stop, and write nothing


def work(db, job_id, attempt, job):
    fence, stop, is_lost = (job_id, HOLDER, attempt), threading.Event(), threading.Event()
    threading.Thread(target=beat, args=(fence, stop, is_lost), daemon=True).start()
    try:
        transcribe(job, is_lost)
        outcome = (True, None, None)
    except Exception as error:  # anything unknown is tried again; VALIDATION and INPUT_TOO_LARGE are not
        outcome = (False, getattr(error, "code", None), str(error))
    stop.set()
    if not is_lost.is_set():
        db.execute("select leasehold.finish_asr_jobs(%s, %s, %s, %s, %s, %s)", (*fence, *outcome))


with psycopg.connect(URL, autocommit=True) as db:
    while True:
        row = db.execute("select id, attempt, job from leasehold.claim_asr_jobs(%s)", (HOLDER,)).fetchone()
        if row:
            work(db, *row)
        elif "--once" in sys.argv:
            break
        else:
            time.sleep(1)
