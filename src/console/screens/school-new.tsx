export const SchoolNew = () => null;
