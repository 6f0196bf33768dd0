import { strategyContract } from './strategy-suite.ts';

strategyContract('skip-locked');
