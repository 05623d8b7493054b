-- Validates the checks of the previous migration. The rows from before it fulfill them, with their two decimals.

alter table fee_component validate constraint fee_component_amount_check;
alter table student_fee validate constraint student_fee_amount_check;
alter table student_fee validate constraint student_fee_paid_amount_check;
alter table student_fee_item validate constraint student_fee_item_amount_check;
alter table invoice validate constraint invoice_amount_check;
alter table invoice validate constraint invoice_paid_amount_check;
alter table invoice_item validate constraint invoice_item_amount_check;
alter table payment validate constraint payment_amount_check;
