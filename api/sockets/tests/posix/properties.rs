//! Random scripts of calls: see `call_script`. A failing script is shrunk and printed by proptest.

use proptest::prelude::*;

use crate::call_script;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_calls_in_any_order_change_nothing(script in prop::collection::vec(any::<u8>(), 0..1_200)) {
        call_script::run(&script);
    }
}
