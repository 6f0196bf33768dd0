import { strategyContract } from './strategy-suite.ts';

strategyContract('advisory-lock');
