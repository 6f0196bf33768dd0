import { strategyContract } from './strategy-suite.ts';

strategyContract('segmented-lock');
