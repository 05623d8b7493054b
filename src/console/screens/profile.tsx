export const Profile = () => null;
