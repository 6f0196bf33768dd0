import { strategyContract } from './strategy-suite.ts';

strategyContract('unique-key');
