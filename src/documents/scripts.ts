const rightToLeft = /[\p{Script=Hebrew}\p{Script=Arabic}]/u;

/** Whether a text has Arabic or Hebrew letters. */
export const isRightToLeft = (text: string): boolean => rightToLeft.test(text);
