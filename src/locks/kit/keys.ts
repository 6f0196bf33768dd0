/**
 * The keys of a resource's lock in Redis, with one hash tag. They are the same for all locks in one Redis, which are
 * never mixed on one resource.
 */
export const keyOf = (resource: string, part: string): string => `stampede:{${resource}}:${part}`;

export const lockKey = (resource: string): string => keyOf(resource, 'lock');
/** The newest fencing token. */
export const fenceKey = (resource: string): string => keyOf(resource, 'fence');
