import { strategyContract } from './strategy-suite.ts';

strategyContract('for-update');
