import { confirm, type ConfirmOptions, showToast } from '../../parts/dialogs.tsx';
import { request } from '../../data/api.ts';
import type { TenantDetail } from '../../types.ts';

/** An action on a school. Asks for confirmation, explains the effect, and reloads the school. */
type SchoolAction = (school: TenantDetail, reload: () => Promise<void>) => Promise<void>;

const path = ({ id }: TenantDetail) => `/api/platform/tenants/${id}`;
const nameOf = ({ name }: TenantDetail) => <bdi>{name}</bdi>;

/** Asks for confirmation. @returns whether the operator confirmed and the request succeeded */
const confirmRequest = (
  dialog: Omit<ConfirmOptions, 'action'>,
  send: () => Promise<unknown>,
  reload: () => Promise<void>,
): Promise<boolean> =>
  confirm({
    ...dialog,
    action: async () => {
      await send();
      await reload();
    },
  });

export const suspendSchool: SchoolAction = async (school, reload) => {
  const dialog = {
    title: <>Suspend {nameOf(school)}?</>,
    text: (
      <ul>
        <li>Its users lose access immediately.</li>
        <li>No data is deleted. You can activate the school again at any time.</li>
      </ul>
    ),
    confirmLabel: 'Suspend',
    isDangerous: true,
  };
  const send = () => request('POST', `${path(school)}/suspend`);
  if (await confirmRequest(dialog, send, reload)) showToast(<>{nameOf(school)} suspended.</>);
};

export const activateSchool: SchoolAction = async (school, reload) => {
  const dialog = {
    title: <>Activate {nameOf(school)}?</>,
    text: <p>Its users can log in again immediately.</p>,
    confirmLabel: 'Activate',
  };
  const send = () => request('POST', `${path(school)}/activate`);
  if (await confirmRequest(dialog, send, reload)) showToast(<>{nameOf(school)} activated.</>);
};

export const deleteSchool: SchoolAction = async (school, reload) => {
  const dialog = {
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
  };
  const send = () => request('DELETE', path(school));
  if (await confirmRequest(dialog, send, reload)) showToast(<>{nameOf(school)} deleted.</>);
};

export const restoreSchool: SchoolAction = async (school, reload) => {
  const dialog = {
    title: <>Restore {nameOf(school)}?</>,
    text: (
      <p>The school returns with all its data and its previous status. A school that was suspended stays suspended.</p>
    ),
    confirmLabel: 'Restore',
  };
  const send = () => request('POST', `${path(school)}/restore`);
  if (await confirmRequest(dialog, send, reload)) showToast(<>{nameOf(school)} restored.</>);
};

export const cancelSubscription: SchoolAction = async (school, reload) => {
  const dialog = {
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
  };
  const send = () => request('PUT', `${path(school)}/subscription`, { body: { status: 'cancelled' } });
  if (await confirmRequest(dialog, send, reload)) showToast(<>Subscription of {nameOf(school)} cancelled.</>);
};

export const activateSubscription: SchoolAction = async (school, reload) => {
  const dialog = {
    title: <>Activate the subscription of {nameOf(school)}?</>,
    text: <p>A paid period of a month starts now.</p>,
    confirmLabel: 'Activate subscription',
  };
  const send = () => request('PUT', `${path(school)}/subscription`, { body: { status: 'active' } });
  if (await confirmRequest(dialog, send, reload)) showToast(<>Subscription of {nameOf(school)} activated.</>);
};

export const forbidImpersonation: SchoolAction = async (school, reload) => {
  const dialog = {
    title: 'Turn off operator login?',
    text: (
      <ul>
        <li>Operators can no longer log in as an admin of {nameOf(school)}. Current sessions end immediately.</li>
        <li>Only an admin of the school can turn it on again.</li>
      </ul>
    ),
    confirmLabel: 'Turn off',
    isDangerous: true,
  };
  const send = () => request('PUT', path(school), { body: { is_impersonation_allowed: false } });
  if (await confirmRequest(dialog, send, reload)) showToast(<>Operator login turned off for {nameOf(school)}.</>);
};
