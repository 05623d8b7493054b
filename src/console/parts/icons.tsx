/** Stroked paths on a 20×20 grid, in the current text color. */
const paths = {
  overview: 'M3.5 10.5h5v6h-5zM11.5 3.5h5v13h-5zM3.5 3.5h5v4h-5z',
  schools: 'M2.5 8 10 4l7.5 4L10 12zM5.5 9.8v4c1.2 1.2 2.7 1.8 4.5 1.8s3.3-.6 4.5-1.8v-4M17.5 8v5',
  usage: 'M3.5 16.5h13M5.5 16v-4M10 16V5M14.5 16V9',
  system: 'M2.5 10.5h3.5l2.5-6 3.5 11 2.5-5h3',
  operators:
    'M7.5 4a2.75 2.75 0 1 1 0 5.5 2.75 2.75 0 0 1 0-5.5M2.5 16c.5-2.5 2.4-3.8 5-3.8s4.5 1.3 5 3.8M13 4.4a2.6 2.6 0 0 1 0 4.8M14.5 12.4c1.7.5 2.7 1.7 3 3.6',
  audit: 'M5 3.5h7l3 3v10H5zM12 3.5v3h3M7.5 10h5M7.5 13h5',
  templates: 'M3 5h14v10.5H3zM3.5 5.5 10 11l6.5-5.5',
  integrations: 'M7 3v4M13 3v4M5 7h10v3a5 5 0 0 1-10 0zM10 15v3',
  settings: 'M3 6h6M13 6h4M3 14h3M10 14h7M11 4v4M8 12v4',
  menu: 'M3 5.5h14M3 10h14M3 14.5h14',
  close: 'm5.5 5.5 9 9M14.5 5.5l-9 9',
  check: 'm4 10.5 4 4 8-9',
  plus: 'M10 4v12M4 10h12',
  search: 'M9 3.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11M13 13l3.5 3.5',
  up: 'm5.5 12 4.5-4.5 4.5 4.5',
  down: 'm5.5 8 4.5 4.5L14.5 8',
  left: 'M12 5.5 7.5 10l4.5 4.5',
  right: 'M8 5.5l4.5 4.5L8 14.5',
  copy: 'M7 7h9v9.5H7zM13 7V3.5H4V13h3',
  export: 'M10 3.5v9M6.5 9l3.5 3.5L13.5 9M4 16.5h12',
  open: 'M8 4.5H4.5v11h11V12M11 4.5h4.5V9M15.5 4.5 9 11',
  theme: 'M10 3.5a6.5 6.5 0 1 0 0 13zM10 3.5a6.5 6.5 0 0 1 0 13',
  person: 'M10 4a3 3 0 1 1 0 6 3 3 0 0 1 0-6M4 16.5c.6-2.7 2.9-4 6-4s5.4 1.3 6 4',
  leave: 'M8.5 3.5h-4v13h4M12.5 6.5 16 10l-3.5 3.5M16 10H8',
  warning: 'M10 4 17 16H3zM10 9v3.5M10 14.2v.2',
} as const;

export type IconName = keyof typeof paths;

/** A decorative icon, hidden from screen readers. */
export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" width="20" height="20" aria-hidden="true" focusable="false">
      <path
        d={paths[name]}
        fill="none"
        stroke="currentColor"
        stroke-width="1.5"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}
