/** Whose request needs a connection. */
export interface RequestSource {
  /**
   * The school, `platform` for operators, `service` for the service itself, `rate limits` for its rate limits; undefined
   * if the request names none.
   */
  school: number | string | undefined;
  /** A session names the school. Otherwise the client may have invented it, or wants to be counted as it. */
  isVerified: boolean;
  /** The user, API key or address that sends the request. They share the connections of their school. */
  caller?: string | undefined;
  /** With several servers, the only one that answers the request, if it is not that of a school. */
  server?: 'home' | 'forwarder' | undefined;
}

/** The server whose answer a request waits for; undefined if that may be any server. */
export type ServerOf = (source: RequestSource) => string | undefined;
