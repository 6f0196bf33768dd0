/**
 * Errors that the operator can fix: the message says what to do, so it is shown without a stack. Each family adds its own
 * class. `code` is stable and meant for programs.
 */
export abstract class OperatorError extends Error {
  abstract readonly code: string;
}

/** The environment or the file `.env` is invalid. Lists every mistake. */
export class ConfigError extends OperatorError {
  override readonly name = 'ConfigError';
  readonly code = 'ERR_STAMPEDE_CONFIG';
  readonly problems: readonly string[];
  constructor(problems: readonly string[], options?: ErrorOptions) {
    const count = problems.length === 1 ? 'a mistake' : `${problems.length} mistakes`;
    const list = problems.map((problem) => `  ${problem}`).join('\n');
    super(`The configuration has ${count}:\n${list}\n.env.example describes every variable.`, options);
    this.problems = problems;
  }
}

/** The service cannot start with this configuration: a store, a lock's server or a worker process is unavailable. */
export class StartError extends OperatorError {
  override readonly name = 'StartError';
  readonly code = 'ERR_STAMPEDE_START';
}
