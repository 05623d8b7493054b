export const Template = () => null;
export const TemplateNew = () => null;
