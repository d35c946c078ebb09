## bench        Skidway beside the machine's own limits, and on Spark; about five minutes; recorded in bench/RESULTS.md
bench: bytecode
	$(BIN)/python -m bench $(ARGS)

## bench-kafka  the same loads in turns with Apache Kafka (Java 17 and Maven); about eight minutes
bench-kafka: bytecode
	$(BIN)/python -m bench --kafka $(ARGS)
