import { join } from 'node:path';
import express, { Router } from 'express';
import { contentPolicy } from './content-policy.ts';

/** The page that password emails link to, for schools without their own app. */
export function passwordPage(): Router {
  const router = Router();
  router.use(contentPolicy());
  router.use(express.static(join(import.meta.dirname, 'password-page'), { extensions: ['html'] }));
  return router;
}
