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

/** Checks that Tab does not leave the modal dialog for the page behind it. */
export async function keepsFocus(page: Page): Promise<void> {
  await page.locator('dialog[open]').waitFor();
  for (let presses = 0; presses < 15; presses++) {
    // The browser has controls of its own, such as the address bar; while they have the focus, the body is active.
    const isInside = await page.evaluate(
      "document.activeElement === document.body || document.activeElement.closest('dialog') !== null",
    );
    if (!isInside) throw new Error(`The focus left the dialog: ${await describeFocus(page)}`);
    await page.keyboard.press('Tab');
  }
}
