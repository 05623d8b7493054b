#!/usr/bin/env node
import { run } from './run.js';

run('src/main', ['--max-semi-space-size=8']);
