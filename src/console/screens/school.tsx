export const School = () => null;
