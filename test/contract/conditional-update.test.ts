import { strategyContract } from './strategy-suite.ts';

strategyContract('conditional-update');
