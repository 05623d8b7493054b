import type { Page } from 'playwright-core';

// Locators for the tests of the console.
export const button = (page: Page, name: string | RegExp) => page.getByRole('button', { name, exact: true });
/** Waits for a screen with this title. */
export const heading = (page: Page, name: string | RegExp) => page.getByRole('heading', { level: 1, name }).waitFor();
/** Waits for a toast with this text. */
export const toast = (page: Page, text: string) => page.locator('.toasts').getByText(text).waitFor();
/** Waits for the login page. */
export const loginPage = (page: Page) => page.getByText('For platform staff.').waitFor();
