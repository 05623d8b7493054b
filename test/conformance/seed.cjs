// Makes Portman generate the same requests in each run.
let state = 20260901;
Math.random = () => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state / 2 ** 32;
};
