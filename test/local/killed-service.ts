/** A service that is killed after it has started a process, and before its watcher knows of that. */
import { Watcher } from '../../src/local/watcher.ts';

Watcher.prototype.watch = () => process.kill(process.pid, 'SIGKILL');
await import('./service.ts');
