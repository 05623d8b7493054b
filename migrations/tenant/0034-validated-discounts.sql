-- Validates the check of discounts: without discounts, every row meets it. Drops the indexes of balances before
-- discounts, which the previous migration replaces: without them, the earlier release sorts and adds up fees more
-- slowly until the functions are installed.

alter table student_fee validate constraint student_fee_discount_amount_check;
drop index student_fee_balance_idx, student_fee_open_idx;
