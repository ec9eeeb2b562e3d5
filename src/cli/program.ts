/** `leasehold`: finds the command that was asked for, runs it, and answers the exit code. */
import { setTimeout as sleep } from 'node:timers/promises'

import { Command, CommanderError } from 'commander'

import { EXIT, type CommandDefinition, type Context, type Exit } from './command.ts'
import { COMMANDS } from './commands.ts'
import { explainFailure, explainUsage } from './failure.ts'
import type { Host } from './host.ts'
import { createOutput } from './output.ts'
import { openSession, type Opening, type Session } from './session.ts'

export async function runCli(argv: readonly string[], host: Host): Promise<Exit> {
  let exit: Exit = EXIT.done
  let current: Command | null = null
  const program = programFor(host, async (definition, command) => {
    current = command
    exit = await perform(definition, command, host)
  })
  const out = createOutput({ isJson: false, hasColour: host.hasColour })
  const output = {
    writeOut: out.print,
    writeErr: (text: string) => out.say(text.trimEnd()),
    outputError: () => undefined,
  }
  for (const command of [program, ...program.commands]) {
    command.configureOutput(output).exitOverride((error) => {
      current ??= command
      throw error
    })
  }
  try {
    await program.parseAsync(argv, { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    exit = error.exitCode === 0 ? EXIT.done : EXIT.usage
    // Without any command the help has been shown, and that says enough.
    const isSaid = exit === EXIT.done || error.code === 'commander.help'
    if (!isSaid) out.say(explainUsage(error, current ?? program, host))
  }
  await out.flushed()
  return exit
}

function programFor(host: Host, run: (definition: CommandDefinition, command: Command) => Promise<void>): Command {
  const program = new Command('leasehold')
    .description('What is stuck, why, what happens next, and what can be done about it.')
    .version(host.version)
    .option('--json', 'print JSON, with "version": 1')
    .option('--no-color', 'print without colour, like NO_COLOR')
    .configureHelp({ showGlobalOptions: true })
    .showSuggestionAfterError(false)
    .addHelpText(
      'after',
      '\nSettings come from the environment (.env.example); without DATABASE_URL the embedded database is asked.\n' +
        'Exit codes: 0 done, 1 unhealthy or not all done, 2 usage or configuration, 4 no database, 5 no such job or none matches.',
    )
  for (const definition of COMMANDS) {
    const command = program.command(definition.usage).description(definition.summary)
    definition.configure?.(command)
    const examples = (definition.examples ?? []).map((each) => `\n  ${host.call(each)}`)
    if (examples.length > 0) command.addHelpText('after', `\nExamples:${examples.join('')}`)
    command.action(() => run(definition, command))
  }
  return program
}

/** What an action that was begun gets to end well after the first Ctrl-C. */
const GRACE_MS = 2000
/** A person who has seen nothing for this long is told that we are still there. */
const PATIENCE_MS = 1000

async function perform(definition: CommandDefinition, command: Command, host: Host): Promise<Exit> {
  const options = command.optsWithGlobals<{ json?: true; color: boolean }>()
  const out = createOutput({ isJson: options.json === true, hasColour: host.hasColour && options.color })
  const sessions: Promise<Session>[] = []
  let isActing = false
  let sayHowFar = (): void => undefined
  const open = (opening: Opening = {}): Promise<Session> => {
    isActing = opening.isActing ?? false
    const session = openSession(host, opening)
    sessions.push(session)
    return session
  }
  const impatience = setTimeout(() => {
    if (!out.hasSpoken()) out.say(`${command.name()}: waiting for the database, which has not answered yet`)
  }, PATIENCE_MS)
  try {
    const ifAbandoned: Context['ifAbandoned'] = (say) => (sayHowFar = say)
    const running = definition.run({ args: command.args, options, host, out, open, ifAbandoned })
    const graceMs = (): number => definition.graceMs ?? (isActing ? GRACE_MS : 0)
    return await Promise.race([running, abandoned(host.stopped, graceMs, () => sayHowFar())])
  } catch (error) {
    const failure = explainFailure(error, { host, command: command.name() })
    if (!host.stopped.aborted) out.say(failure.text)
    return failure.exit
  } finally {
    clearTimeout(impatience)
    // Also what was still being opened when somebody lost patience: a database of ours must not be left running.
    for (const opened of await Promise.allSettled(sessions)) {
      if (opened.status === 'fulfilled') await opened.value.close()
    }
    await out.flushed()
  }
}

async function abandoned(stopped: AbortSignal, graceMs: () => number, sayHowFar: () => void): Promise<Exit> {
  await new Promise((done) => stopped.addEventListener('abort', done, { once: true }))
  await sleep(graceMs())
  sayHowFar()
  return EXIT.unwell
}
