import { render } from 'preact';
import { Pill } from '../ui/parts.tsx';

render(<Pill tone="good">Stampede</Pill>, document.body);
