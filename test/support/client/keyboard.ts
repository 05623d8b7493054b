import type { Locator, Page } from 'playwright-core';

/** Waits until an element has the focus. */
export async function hasFocus(page: Page, element: Locator): Promise<void> {
  await page.locator(':focus').and(element).waitFor();
}

const describeFocus = (page: Page) =>
  page.evaluate<string>(
    `(({ tagName, textContent, ariaLabel, name }) =>
      tagName + ' ' + (ariaLabel || name || textContent || '').trim().slice(0, 30))(document.activeElement)`,
  );

/**
 * Presses Tab (or Shift+Tab) until an element has the focus and shows it.
 * @throws with the elements that got the focus, if this one did not
 */
export async function tabTo(page: Page, element: Locator, key: 'Tab' | 'Shift+Tab' = 'Tab'): Promise<void> {
  await element.waitFor();
  const passed: string[] = [];
  while (passed.length < 150) {
    await page.keyboard.press(key);
    if ((await page.locator(':focus-visible').and(element).count()) > 0) return;
    passed.push(await describeFocus(page));
  }
  throw new Error(`${key} does not reach ${element.toString()}. It reaches: ${passed.join(', ')}`);
}

/** Goes to an element with Tab and presses a key there; Enter by default. */
export async function pressOn(page: Page, element: Locator, key = 'Enter'): Promise<void> {
  await tabTo(page, element);
  await page.keyboard.press(key);
}

/** Goes to a field with Tab and types into it. */
export async function typeInto(page: Page, field: Locator, text: string): Promise<void> {
  await tabTo(page, field);
  await page.keyboard.press('Control+a');
  await page.keyboard.type(text);
}

/** Where the focus is while a modal dialog is open: in it, on the page behind it, or in a control of the browser. */
const focusedPlace = (page: Page) =>
  page.evaluate<'dialog' | 'page' | 'browser'>(
    // While a control of the browser has the focus, such as the address bar, no element of the page matches :focus.
    `((focused) => (!focused ? 'browser' : focused.closest('dialog') ? 'dialog' : 'page'))(document.querySelector(':focus'))`,
  );

/** Checks that Tab does not leave the modal dialog for the page behind it. The focus is in the dialog afterwards. */
export async function keepsFocus(page: Page): Promise<void> {
  await page.locator('dialog[open]').waitFor();
  for (let presses = 0; presses < 15 || (await focusedPlace(page)) === 'browser'; presses++) {
    if ((await focusedPlace(page)) === 'page')
      throw new Error(`The focus left the dialog: ${await describeFocus(page)}`);
    if (presses === 40) throw new Error('Tab does not return to the dialog.');
    await page.keyboard.press('Tab');
  }
}
