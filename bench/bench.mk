## bench        Skidway beside the machine's own limits, three nodes, Spark; about 15 minutes; recorded in bench/RESULTS.md
bench: bytecode
	$(BIN)/python -m bench $(ARGS)

## bench-kafka  the same loads in turns with Apache Kafka (Java 17 and Maven); about half an hour
bench-kafka: bytecode
	$(BIN)/python -m bench --kafka $(ARGS)
