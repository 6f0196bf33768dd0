/**
 * The interface of a fault that strikes a sale: the service, its stores, or the ways between them.
 *
 *   customers come ─▶ strike ─▶ (lastsMs) ─▶ heal ─▶ customers go on, then a crowd wants the last units ─▶ audit
 */
import type { TcpProxy } from '../kit/proxy.ts';
import type { LabServers, Node } from './servers.ts';

/** What a fault can reach. */
export interface Shop {
  readonly service: {
    /** SIGKILL. */
    kill(): Promise<void>;
    /** Starts a killed one, and waits until it listens. */
    start(): Promise<void>;
    signal(name: 'SIGSTOP' | 'SIGCONT'): void;
  };
  readonly redis: Node & Pick<LabServers, 'setClock'>;
  readonly postgres: Node;
  /** The service's connections. */
  readonly links: { readonly redis: TcpProxy; readonly postgres: TcpProxy };
}

export interface StrategyFault {
  readonly name: string;
  /** The head of its column. */
  readonly title: string;
  /** One sentence: when this happens in real life. */
  readonly happens: string;
  strike(shop: Shop): Promise<void>;
  heal(shop: Shop): Promise<void>;
}

/** From strike to heal, in ms. */
export const OUTAGE_MS = 2_000;
