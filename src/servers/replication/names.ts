/*
 * The names of subscriptions. The slot of a subscription on the publisher has the same name. db/core and the commands
 * that remove a node know these names too.
 */

/** The subscription of the home to a node. */
export const homeSubscription = (node: number) => `school_node_${String(node)}`;

/** The subscription of a node to the home. */
export const nodeSubscription = (node: number) => `school_home_${String(node)}`;

/** The subscription of a forwarder to the directory. Each needs a slot of its own at home. */
export const forwarderSubscription = (forwarder: string) => `school_forwarder_${forwarder}`;

/**
 * The subscription of the target of a move, also the name of the publication on the source. It names the target, so that
 * no other server takes its changes.
 * @param target  the name of the home, or the id of a node
 */
export const moveSubscription = (school: number, target: number | string) =>
  `school_move_${String(school)}_${String(target)}`;
