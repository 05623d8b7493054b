import { choice } from '../../http/coercion.ts';

export const gender = choice(['female', 'male', 'non_binary', 'other', 'undisclosed'], {
  synonyms: {
    female: ['f', 'girl', 'woman'],
    male: ['m', 'boy', 'man'],
    non_binary: ['nb', 'enby', 'x'],
    other: ['o', 'diverse', 'third gender', 'transgender'],
    undisclosed: ['unknown', 'unspecified', 'not specified', 'not stated', 'prefer not to say'],
  },
}).meta({ examples: ['female'] });
