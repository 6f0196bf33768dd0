import { strategyContract } from './strategy-suite.ts';

strategyContract('global-lock');
