import { z } from 'zod';
import { id, timestamp } from '../../http/schemas.ts';

/** A session of a user or an operator. */
export const Session = z
  .object({
    id,
    ip: z.string().nullable().meta({ description: 'The address of the login or of the last refresh.' }),
    user_agent: z.string().nullable().meta({ description: 'The program of the login, at most 200 characters.' }),
    is_current: z.boolean().meta({ description: 'True for the session of this request.' }),
    last_used_at: timestamp.meta({ description: 'The time of the login or of the last refresh.' }),
    expires_at: timestamp,
    created_at: timestamp,
  })
  .meta({ id: 'Session' });
