/** The command lines of `npm start` and of the commands beside it. */
import { type ParseArgsConfig, parseArgs } from 'node:util';
import { OperatorError } from './errors.ts';
import { suggestion, unknownOption } from './suggest.ts';

/** The command line is invalid. */
export class UsageError extends OperatorError {
  override readonly name = 'UsageError';
  readonly code = 'ERR_STAMPEDE_USAGE';
}

/**
 * Parses the command line of this process.
 * @param words the arguments that belong to no option
 * @throws UsageError with one line
 */
export function readArguments<Options extends NonNullable<ParseArgsConfig['options']>>(
  options: Options,
  words: readonly string[] = [],
) {
  const { tokens } = parseArgs({ options, strict: false, allowPositionals: true, tokens: true });
  for (const token of tokens) {
    if (token.kind === 'option' && !Object.hasOwn(options, token.name))
      throw new UsageError(unknownOption(token.rawName, Object.keys(options)));
    if (token.kind === 'positional' && !words.includes(token.value))
      throw new UsageError(`"${token.value}" is not a command${suggestion(token.value, words)}`);
  }
  try {
    return parseArgs({ options, allowPositionals: true });
  } catch (error) {
    throw new UsageError((error as Error).message.split('\n')[0]);
  }
}
