"""Playing scenarios against a model, in worlds whole, broken or stressed; judging old runs anew."""
