export const Templates = () => null;
