import { strategyContract } from './strategy-suite.ts';

strategyContract('unsafe');
