"""The compiler: op table, graph, passes, fusion, kernels, source text."""
