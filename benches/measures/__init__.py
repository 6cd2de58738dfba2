"""Groups of cases, measured through the `mooncake.engine` API; engine_bench.py runs them."""
