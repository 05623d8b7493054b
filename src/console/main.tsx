import { render } from 'preact';
import { Console } from './console.tsx';
import { restoreSession } from './data/session.ts';
import './theme.ts';

const root = document.getElementById('console');
if (root) render(<Console />, root);
void restoreSession();
