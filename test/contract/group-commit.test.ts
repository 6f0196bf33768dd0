import { strategyContract } from './strategy-suite.ts';

strategyContract('group-commit');
