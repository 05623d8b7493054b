export const Audit = () => null;
