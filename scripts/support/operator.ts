/** The operator's view and hands, as the settings say. */
import { type Config, recoverySettings } from '../../src/config/config.ts'
import type { Database } from '../../src/db/client.ts'
import type { Profile } from '../../src/db/profile.ts'
import { createOperator, type Operator, type OperatorOptions } from '../../src/operator/operator.ts'

export function operatorOf(
  config: Config,
  tables: readonly Profile[],
  db: Database,
  extras: Pick<OperatorOptions, 'dispatch' | 'metrics' | 'log'> = {},
): Operator {
  return createOperator({
    db,
    tables,
    ...recoverySettings(config),
    ...extras,
  })
}
