/** Kinds of values that variables have: each is a schema from the text of a variable to its value. */
import * as z from 'zod';
import { nearest } from './suggest.ts';
import { isLoopback, withoutBrackets } from './urls/hosts.ts';

/** REDIS_URL of a service without Redis; TASK_WEBHOOK_URL of one whose tasks are only logged. */
export const NONE = 'none';

export const integer = (min: number, max: number) =>
  z
    .string()
    .refine((text) => /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max, {
      error: `must be an integer from ${min} to ${max}`,
    })
    .transform(Number);

/** A number from 0 to 1. */
export const share = z
  .string()
  .regex(/^(0|1|0?\.\d+|1\.0+)$/, 'must be a number from 0 to 1')
  .transform(Number);

/** One of two values, as its literal type. */
export const either = <A extends string, B extends string>(a: A, b: B) =>
  z.string().refine((text): text is A | B => text === a || text === b, { error: `must be ${a} or ${b}` });

export const oneOf = (names: readonly string[]) =>
  z.string().refine((name) => names.includes(name), {
    error: ({ input }) => {
      const near = nearest(String(input), names);
      const question = near === null ? '' : `; did you mean ${near}?`;
      return `must be one of ${names.join(', ')}${question}`;
    },
  });

const split = (text: string) => text.split(',').map((part) => part.trim());

/** Values with commas between them. */
export const listOf = <T>(one: z.ZodType<T, string>) => z.string().transform(split).pipe(z.array(one));

/** `all`, or some of the names, separated by commas. */
export const someOf = <N extends string>(names: readonly N[]) =>
  z
    .string()
    .transform((text) => (text === 'all' ? names : split(text)))
    .refine((given): given is readonly N[] => given.every((name) => names.includes(name as N)), {
      error: `must be all, or some of ${names.join(', ')}, separated by commas`,
    });

/** @param parse returns what is wrong as a text */
export const parsedBy = (parse: (text: string) => unknown) =>
  z.string().check(({ value, issues }) => {
    const result = parse(value);
    if (typeof result === 'string') issues.push({ code: 'custom', message: result, input: value });
  });

export const currencyCode = z
  .string()
  .refine(
    (code) => Intl.supportedValuesOf('currency').includes(code),
    'must be a code of ISO 4217, such as EUR',
  );

export const hostAndPorts = z
  .string()
  .regex(/^[^\s,:/]+:\d{1,5}(,[^\s,:/]+:\d{1,5})*$/, 'must be host:port, or several separated by commas');

export const url = (...protocols: string[]) =>
  z.string().refine((text) => URL.canParse(text) && protocols.includes(new URL(text).protocol), {
    error: `must be a URL starting with ${protocols.map((p) => `${p}//`).join(' or ')}`,
  });

export const redlockUrls = z
  .string()
  .transform(split)
  .refine(
    (urls) => urls.length >= 3 && urls.every((one) => url('redis:', 'rediss:').safeParse(one).success),
    { error: 'must be at least three comma-separated redis:// URLs' },
  );

/** Whether what is sent there cannot be read on the way. */
const isPrivate = ({ protocol, hostname }: URL): boolean =>
  protocol === 'https:' || isLoopback(withoutBrackets(hostname));

/** Encrypted, or on this machine. */
export const privateUrl = url('http:', 'https:').refine(
  (text) => !URL.canParse(text) || isPrivate(new URL(text)),
  { error: 'must start with https:// unless its host is loopback' },
);

/** Where tasks or events are posted, or `none`. */
export const receiver = parsedBy(
  (text) => text === NONE || (privateUrl.safeParse(text).error?.issues[0]?.message ?? null),
);
