import { isUtf8 } from 'node:buffer';
import type { Request, RequestHandler } from 'express';
import { z } from 'zod';
import { ApiError, type ErrorDetail } from '../domain/errors.ts';
import { inner, isRecord } from './coercion.ts';

/** The schemas of texts that stay as they were sent. */
const keptForms = z.registry<{ isKept: boolean }>();

/** Marks a text that is not normalized, such as a password whose hash is of the form that was typed. */
export function keepForm<S extends z.ZodType>(schema: S): S {
  keptForms.add(schema, { isKept: true });
  return schema;
}

/** All text below U+0300 is in NFC. */
const mayChange = /[\u0300-\uffff]/;

/** A text in the normalization form in which texts are stored, compared and searched: NFC. */
export const normalizeText = (text: string): string => (mayChange.test(text) ? text.normalize() : text);

/** The schema of a field or an entry; undefined if the schema does not describe it. */
function partOf(schema: z.ZodType | undefined, key: string | number): z.ZodType | undefined {
  if (schema instanceof z.ZodObject)
    return Object.hasOwn(schema.shape, key) ? (schema.shape[key] as z.ZodType) : undefined;
  return schema instanceof z.ZodArray ? (schema.element as z.ZodType) : undefined;
}

/**
 * The value of a request as the service uses it: every text and every key in NFC, at any depth, also where the schema
 * describes nothing.
 * @throws ApiError `validation_error` for a text with half of a surrogate pair, which is no text in UTF-8
 */
export function receivedText(schema: z.ZodType, value: unknown): unknown {
  const faults: ErrorDetail[] = [];
  const text = (given: string, path: (string | number)[], isKept: boolean): string => {
    if (!given.isWellFormed())
      faults.push({ path: path.join('.').toWellFormed().slice(0, 100), message: 'is not valid Unicode text' });
    return isKept ? given : normalizeText(given);
  };
  const received = (
    part: z.ZodType | undefined,
    given: unknown,
    path: (string | number)[],
    isKept: boolean,
  ): unknown => {
    const keeps = isKept || (part !== undefined && keptForms.get(part) !== undefined);
    const wrapped = part && inner(part);
    if (wrapped) return received(wrapped, given, path, keeps);
    if (typeof given === 'string') return text(given, path, keeps);
    if (Array.isArray(given))
      return given.map((item, index) => received(partOf(part, index), item, [...path, index], keeps));
    if (!isRecord(given)) return given;
    return Object.fromEntries(
      Object.entries(given).map(([key, item]) => {
        const name = text(key, [...path, key], keeps);
        return [name, received(partOf(part, name), item, [...path, name], keeps)];
      }),
    );
  };
  const result = received(schema, value, [], false);
  const [first] = faults;
  if (first)
    throw new ApiError('validation_error', `${first.path || 'The body'}: ${first.message}`, {
      details: faults.slice(0, 20),
    });
  return result;
}

/** The bytes of a header. Node decodes them as Latin-1. */
const bytesOf = (received: string): Buffer => Buffer.from(received, 'latin1');

/** The headers whose text is stored. Tokens and keys are ASCII, or match nothing. */
const storedHeaders = ['user-agent'] as const;

/** The text of a header that is stored. */
export function headerText(req: Request, name: (typeof storedHeaders)[number]): string | undefined {
  const received = req.get(name);
  return received === undefined ? undefined : normalizeText(bytesOf(received).toString());
}

const isDecodable = (encoded: string): boolean => {
  try {
    decodeURIComponent(encoded);
    return true;
  } catch {
    return false;
  }
};

/** The name of the first parameter of a query that is no text in UTF-8, percent-encoded. */
function undecodableParameter(query: string): string | undefined {
  if (!query.includes('%')) return undefined;
  const fault = query.split('&').find((parameter) => !isDecodable(parameter));
  if (fault === undefined) return undefined;
  const [name = ''] = fault.split('=', 1);
  return isDecodable(name) ? decodeURIComponent(name.replaceAll('+', ' ')) : name;
}

/**
 * Refuses a request whose path, query or stored headers are no text in UTF-8, before something decodes them and
 * replaces what is invalid. Node itself refuses an address with bytes that are not ASCII.
 */
export const refuseInvalidText: RequestHandler = (req, _res, next) => {
  const [path = '', query = ''] = req.url.split(/\?(.*)/s, 2);
  const parameter = undecodableParameter(query);
  const header = storedHeaders.find((name) => !isUtf8(bytesOf(req.get(name) ?? '')));
  const at = !isDecodable(path) ? '' : (parameter ?? header);
  if (at === undefined) {
    next();
    return;
  }
  const message =
    at === header ? 'is not valid UTF-8' : 'is not valid UTF-8 in percent-encoding (a `%` is written `%25`)';
  next(
    new ApiError('validation_error', `${at === '' ? 'The path' : at} ${message}.`, {
      details: [{ path: at.slice(0, 100), message }],
    }),
  );
};
