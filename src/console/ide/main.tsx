import { render } from 'preact';
import { restoreSession } from '../data/session.ts';
import '../theme.ts';
import { Ide } from './ide.tsx';

const root = document.getElementById('ide');
if (root) render(<Ide />, root);
void restoreSession();
