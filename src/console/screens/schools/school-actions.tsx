import { confirm } from '../../parts/dialogs.tsx';
import { request } from '../../data/api.ts';
import type { TenantDetail } from '../../types.ts';

/** An action on a school. Asks for confirmation, explains the effect, and reloads the school. */
type SchoolAction = (school: TenantDetail, reload: () => Promise<void>) => Promise<boolean>;

const path = ({ id }: TenantDetail) => `/api/platform/tenants/${id}`;
const nameOf = ({ name }: TenantDetail) => <bdi>{name}</bdi>;

export const suspendSchool: SchoolAction = (school, reload) =>
  confirm({
    title: <>Suspend {nameOf(school)}?</>,
    text: (
      <ul>
        <li>Its users lose access immediately.</li>
        <li>No data is deleted. You can activate the school again at any time.</li>
      </ul>
    ),
    confirmLabel: 'Suspend',
    isDangerous: true,
    action: () => request('POST', `${path(school)}/suspend`),
    reload,
    done: <>{nameOf(school)} suspended.</>,
  });

export const activateSchool: SchoolAction = (school, reload) =>
  confirm({
    title: <>Activate {nameOf(school)}?</>,
    text: <p>Its users can log in again immediately.</p>,
    confirmLabel: 'Activate',
    action: () => request('POST', `${path(school)}/activate`),
    reload,
    done: <>{nameOf(school)} activated.</>,
  });

export const deleteSchool: SchoolAction = (school, reload) =>
  confirm({
    title: <>Delete {nameOf(school)}?</>,
    text: (
      <ul>
        <li>Its users lose access immediately, and the school is removed from the list of schools.</li>
        <li>
          You can restore it during the retention period. After that, its data is exported to a file and removed from
          the database.
        </li>
        <li>Its subdomain stays reserved.</li>
      </ul>
    ),
    requiredText: school.subdomain,
    confirmLabel: 'Delete school',
    isDangerous: true,
    action: () => request('DELETE', path(school)),
    reload,
    done: <>{nameOf(school)} deleted.</>,
  });

export const restoreSchool: SchoolAction = (school, reload) =>
  confirm({
    title: <>Restore {nameOf(school)}?</>,
    text: (
      <p>The school returns with all its data and its previous status. A school that was suspended stays suspended.</p>
    ),
    confirmLabel: 'Restore',
    action: () => request('POST', `${path(school)}/restore`),
    reload,
    done: <>{nameOf(school)} restored.</>,
  });

export const cancelSubscription: SchoolAction = (school, reload) =>
  confirm({
    title: <>Cancel the subscription of {nameOf(school)}?</>,
    text: (
      <ul>
        <li>It ends immediately. Users can log in and read, but not change anything.</li>
        <li>No data is deleted. You can activate the subscription again at any time.</li>
      </ul>
    ),
    confirmLabel: 'Cancel subscription',
    cancelLabel: 'Keep subscription',
    isDangerous: true,
    option: {
      label: 'The school cannot choose a plan again',
      hint: 'Otherwise its admins can start a new subscription themselves.',
    },
    action: (is_final) => request('PUT', `${path(school)}/subscription`, { body: { status: 'cancelled', is_final } }),
    reload,
    done: <>Subscription of {nameOf(school)} cancelled.</>,
  });

export const activateSubscription: SchoolAction = (school, reload) =>
  confirm({
    title: <>Activate the subscription of {nameOf(school)}?</>,
    text: <p>A paid period of a month starts now.</p>,
    confirmLabel: 'Activate subscription',
    action: () => request('PUT', `${path(school)}/subscription`, { body: { status: 'active' } }),
    reload,
    done: <>Subscription of {nameOf(school)} activated.</>,
  });

export const forbidImpersonation: SchoolAction = (school, reload) =>
  confirm({
    title: 'Turn off operator login?',
    text: (
      <ul>
        <li>Operators can no longer log in as an admin of {nameOf(school)}. Current sessions end immediately.</li>
        <li>Only an admin of the school can turn it on again.</li>
      </ul>
    ),
    confirmLabel: 'Turn off',
    isDangerous: true,
    action: () => request('PUT', path(school), { body: { is_impersonation_allowed: false } }),
    reload,
    done: <>Operator login turned off for {nameOf(school)}.</>,
  });
